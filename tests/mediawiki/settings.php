<?php
/**
 * What a test wiki's LocalSettings.php is extended by: its folder, no caches that a test would
 * have to wait for, the actions of Entities.php and Search.php, and the hooks of Hooks.php.
 *
 * LocalSettings.php sets $hgldWiki (the wiki's folder) and requires this file. The wiki can be
 * copied to another folder and served on any port.
 *
 * Copyright (C) 2026 hgld contributors
 *
 * This program is free software; you can redistribute it and/or modify it under the terms of the
 * GNU General Public License as published by the Free Software Foundation; either version 2 of the
 * License, or (at your option) any later version. It is distributed in the hope that it will be
 * useful, but WITHOUT ANY WARRANTY; without even the implied warranty of MERCHANTABILITY or
 * FITNESS FOR A PARTICULAR PURPOSE. See the GNU General Public License for more details.
 *
 * @license GPL-2.0-or-later
 */

$wgServer = 'http://127.0.0.1:' . ( getenv( 'HGLD_WIKI_PORT' ) ?: '8080' );
$wgSQLiteDataDir = "$hgldWiki/data";
$wgJobTypeConf['default']['server']['dbDirectory'] = $wgSQLiteDataDir;
$wgJobRunRate = 0;
$wgMainCacheType = CACHE_NONE;
$wgCacheDirectory = "$hgldWiki/cache";
$wgLocalisationCacheConf = [
	'class' => LocalisationCache::class,
	'store' => 'array',
	'storeClass' => false,
	'storeDirectory' => $wgCacheDirectory,
	'storeServer' => [],
	'manualRecache' => false,
];

require_once __DIR__ . '/Entities.php';
require_once __DIR__ . '/Hooks.php';
require_once __DIR__ . '/Search.php';
$wgAPIModules['wbgetentities'] = HgldGetEntities::class;
$wgAPIModules['wbsearchentities'] = HgldSearchEntities::class;
$wgAPIListModules['search'] = HgldSearchStatements::class;
$wgHooks['ParserAfterParse'][] = 'HgldHooks::onParserAfterParse';
$wgHooks['ApiMaxLagInfo'][] = 'HgldHooks::onApiMaxLagInfo';

if ( is_file( "$hgldWiki/more.php" ) ) {
	require "$hgldWiki/more.php";
}
