<?php
/**
 * The test wiki's own tables, and what MediaWiki asks of them: a page's item, the server's lag.
 *
 * hgld_entity holds an entity as JSON (target: what it was merged into; the row "*" holds claims
 * that all have), hgld_sitelink the item of a page by its title.
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

class HgldHooks {
	/** The item of a page: what the table of site links says. */
	public static function itemOf( string $title ): ?string {
		$id = self::database()->newSelectQueryBuilder()
			->select( 'id' )->from( 'hgld_sitelink' )->where( [ 'title' => $title ] )
			->caller( __METHOD__ )->fetchField();
		return $id === false ? null : (string)$id;
	}

	/** Rows of the asked entities by asked id; of a merged one the row of its target. */
	public static function entities( array $ids ): array {
		if ( !$ids ) {
			return [];
		}
		$rows = self::rows( array_map( 'strtoupper', $ids ) );
		$targets = self::rows( array_filter( array_column( $rows, 'target' ) ) );
		foreach ( $rows as $id => $row ) {
			if ( $row->target !== '' ) {
				$merged = isset( $targets[$row->target] ) ? clone $targets[$row->target] : null;
				if ( $merged !== null ) {
					$merged->target = $row->target;
				}
				$rows[$id] = $merged;
			}
		}
		return $rows;
	}

	/** The item whose site link leads to a page of another wiki. */
	public static function itemAt( string $site, string $title ): ?string {
		foreach ( self::allEntities() as $entity ) {
			if ( ( $entity['sitelinks'][$site]['title'] ?? null ) === $title ) {
				return $entity['id'];
			}
		}
		return null;
	}

	/** The documents of all entities, by number. */
	public static function allEntities(): array {
		$found = self::database()->newSelectQueryBuilder()
			->select( [ 'document' ] )->from( 'hgld_entity' )
			->where( [ 'target' => '', "id <> '*'" ] )
			->caller( __METHOD__ )->fetchFieldValues();
		$entities = array_map( static fn ( $text ) => json_decode( $text, true ), $found );
		usort( $entities, static fn ( $a, $b ) => (int)substr( $a['id'], 1 ) <=> (int)substr( $b['id'], 1 ) );
		return $entities;
	}

	/** Claims that every entity has besides its own, so that answers are as heavy as real ones. */
	public static function claimsOfAll(): array {
		static $claims = null;
		$claims ??= json_decode( self::rows( [ '*' ] )['*']->document ?? '[]', true );
		return $claims;
	}

	/** A page gets its item as the page property that the real client extension sets. */
	public static function onParserAfterParse( Parser $parser ): void {
		$title = $parser->getTitle();
		$id = $title === null ? null : self::itemOf( $title->getPrefixedText() );
		if ( $id !== null ) {
			$parser->getOutput()->setPageProperty( 'wikibase_item', $id );
		}
	}

	/** The lag that the router's plan asks for, as Wikidata reports that of its query service. */
	public static function onApiMaxLagInfo( array &$info ): void {
		$lag = $GLOBALS['hgldLag'] ?? 0;
		if ( $lag > $info['lag'] ) {
			$info = [
				'host' => 'all',
				'lag' => $lag,
				'type' => 'wikibase-queryservice',
				'queryserviceLag' => (int)( 60 * $lag ),
			];
		}
	}

	private static function rows( array $ids ): array {
		if ( !$ids ) {
			return [];
		}
		$found = self::database()->newSelectQueryBuilder()
			->select( [ 'id', 'target', 'page', 'revision', 'document' ] )
			->from( 'hgld_entity' )->where( [ 'id' => array_values( $ids ) ] )
			->caller( __METHOD__ )->fetchResultSet();
		$rows = [];
		foreach ( $found as $row ) {
			$rows[$row->id] = $row;
		}
		return $rows;
	}

	private static function database() {
		return wfGetDB( DB_REPLICA );
	}
}
