<?php
/**
 * action=wbgetentities for a test wiki: entities out of a table of the wiki's own database.
 *
 * Parameters are declared, so that MediaWiki itself checks, limits and splits them, warns of what
 * it does not know and writes its errors; what is left is the look-up. It is as poor with titles as
 * the real module, and as silent about what does not fit into the largest allowed result.
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

use Wikimedia\ParamValidator\ParamValidator;

class HgldGetEntities extends ApiBase {
	private const SITES = [ 'commonswiki', 'enwiki', 'dewiki', 'frwiki' ];
	private const DATA = [ 'sitelinks', 'aliases', 'labels', 'descriptions', 'claims' ];

	public function execute() {
		$params = $this->extractRequestParams();
		$asked = $this->idsOfTitles( $params );
		foreach ( $params['ids'] ?? [] as $id ) {
			$this->requireWellFormed( $id );
			$asked[] = [ 'id' => $id ];
		}
		if ( !$asked ) {
			$this->dieOf(
				'param-missing',
				'wikibase-api-illegal-ids-or-sites-titles-selector',
				'Either provide the Item "ids" or pairs of "sites" and "titles" for corresponding page'
			);
		}
		$this->answer( $asked, $params );
		$this->getResult()->addValue( null, 'success', 1 );
	}

	protected function getAllowedParams() {
		$many = [ ParamValidator::PARAM_ISMULTI => true ];
		$repeatable = $many + [ ParamValidator::PARAM_ALLOW_DUPLICATES => true ];
		$props = [ 'info', 'sitelinks', 'sitelinks/urls', 'aliases', 'labels', 'descriptions',
			'claims', 'datatype' ];
		$languages = array_keys( \MediaWiki\MediaWikiServices::getInstance()
			->getLanguageNameUtils()->getLanguageNames() );
		return [
			'ids' => $many + [ ParamValidator::PARAM_TYPE => 'string' ],
			'sites' => $repeatable + [ ParamValidator::PARAM_TYPE => self::SITES ],
			'titles' => $repeatable + [ ParamValidator::PARAM_TYPE => 'string' ],
			'redirects' => [
				ParamValidator::PARAM_TYPE => [ 'yes', 'no' ],
				ParamValidator::PARAM_DEFAULT => 'yes',
			],
			'props' => $many + [
				ParamValidator::PARAM_TYPE => $props,
				ParamValidator::PARAM_DEFAULT =>
					'info|sitelinks|aliases|labels|descriptions|claims|datatype',
			],
			'languages' => $many + [ ParamValidator::PARAM_TYPE => [ ...$languages, 'mul' ] ],
			'languagefallback' => [ ParamValidator::PARAM_TYPE => 'boolean' ],
			'normalize' => [ ParamValidator::PARAM_TYPE => 'boolean' ],
			'sitefilter' => $repeatable + [ ParamValidator::PARAM_TYPE => self::SITES ],
		];
	}

	/** Each pair of site and title as the id that it has, or as itself where it has none. */
	private function idsOfTitles( array $params ): array {
		$sites = $params['sites'] ?? [];
		$titles = $params['titles'] ?? [];
		if ( !$sites || !$titles ) {
			return [];
		}
		if ( count( $sites ) > 1 && count( $titles ) > 1 && count( $sites ) !== count( $titles ) ) {
			$this->dieOf( 'params-illegal', '',
				'Must request one site, one title, or an equal number of sites and titles' );
		}
		if ( $params['normalize'] ) {
			$titles = $this->normalized( $sites, $titles );
		}
		$pairs = count( $sites ) > 1 && count( $titles ) > 1
			? array_map( null, $sites, $titles )
			: array_merge( ...array_map(
				static fn ( $site ) => array_map( static fn ( $t ) => [ $site, $t ], $titles ),
				$sites
			) );
		return array_map( [ $this, 'idOfPair' ], $pairs );
	}

	private function idOfPair( array $pair ): array {
		[ $site, $title ] = $pair;
		$key = trim( str_replace( '_', ' ', $title ) );
		$id = $site === 'commonswiki' ? HgldHooks::itemOf( $key ) : HgldHooks::itemAt( $site, $key );
		return $id === null ? [ 'site' => $site, 'title' => $title ] : [ 'id' => $id ];
	}

	private function normalized( array $sites, array $titles ): array {
		if ( count( $sites ) !== 1 || count( $titles ) !== 1 ) {
			$this->dieOf( 'params-illegal', '',
				'Normalize is only allowed if exactly one site and one page have been given' );
		}
		$title = Title::newFromText( $titles[0] );
		$page = $title === null ? null : WikiPage::factory( $title );
		$target = $page !== null && $page->isRedirect() ? $page->getRedirectTarget() : $title;
		$text = $target === null ? $titles[0] : $target->getPrefixedText();
		if ( $text !== $titles[0] ) {
			$this->getResult()->addValue( 'normalized', 'n', [ 'from' => $titles[0], 'to' => $text ] );
		}
		return [ $text ];
	}

	private function requireWellFormed( string $id ): void {
		if ( !preg_match( '/^[QPL][1-9]\d{0,9}$/i', $id ) ) {
			$this->dieOf( 'no-such-entity', 'wikibase-api-no-such-entity',
				"Could not find an entity with the ID \"$id\".", $id );
		}
	}

	private function answer( array $asked, array $params ): void {
		$result = $this->getResult();
		$rows = HgldHooks::entities( array_column( $asked, 'id' ) );
		$missing = 0;
		foreach ( array_unique( $asked, SORT_REGULAR ) as $one ) {
			$row = isset( $one['id'] ) ? $rows[strtoupper( $one['id'] )] ?? null : null;
			$hidden = $row !== null && $row->target !== '' && $params['redirects'] === 'no';
			if ( $row === null || $hidden ) {
				$key = $one['id'] ?? (string)( --$missing );
				$result->addValue( 'entities', $key, $one + [ 'missing' => '' ] );
			} else {
				$entity = $this->shown( $row, $one['id'], $params );
				$result->addValue( 'entities', strtoupper( $one['id'] ), $entity );
			}
		}
		$result->addArrayType( 'entities', 'assoc' );
	}

	/** The parts of an entity that were asked for. */
	private function shown( stdClass $row, string $asked, array $params ): array {
		$props = array_flip( $params['props'] );
		$entity = json_decode( $row->document, true );
		$shown = isset( $props['info'] ) ? $this->info( $row, $entity['id'], $asked ) : [];
		$shown += [ 'type' => $entity['type'], 'id' => $entity['id'] ];
		foreach ( array_intersect( self::DATA, $params['props'] ) as $name ) {
			$part = $entity[$name] ?? [];
			$part = $name === 'claims' ? $part + HgldHooks::claimsOfAll() : $part;
			if ( $name === 'sitelinks' && ( $params['sitefilter'] ?? [] ) ) {
				$part = array_intersect_key( $part, array_flip( $params['sitefilter'] ) );
			}
			if ( in_array( $name, [ 'labels', 'descriptions', 'aliases' ], true ) ) {
				$part = $this->inLanguages( $part, $params );
			}
			ApiResult::setArrayType( $part, 'assoc' );
			$shown[$name] = $part;
		}
		// The real module's order of parts, whatever the order of the question.
		$order = array_flip( [ 'labels', 'descriptions', 'aliases', 'claims', 'sitelinks' ] );
		uksort( $shown, static fn ( $a, $b ) => ( $order[$a] ?? -1 ) <=> ( $order[$b] ?? -1 ) );
		return $shown;
	}

	private function info( stdClass $row, string $id, string $asked ): array {
		$info = [
			'pageid' => (int)$row->page,
			'ns' => 0,
			'title' => $id,
			'lastrevid' => (int)$row->revision,
			'modified' => '2026-08-01T00:00:00Z',
		];
		return $row->target === ''
			? $info
			: $info + [ 'redirects' => [ 'from' => strtoupper( $asked ), 'to' => $row->target ] ];
	}

	/** Of a map by language the asked ones, with what the wiki falls back to where that is asked. */
	private function inLanguages( array $part, array $params ): array {
		if ( !isset( $params['languages'] ) ) {
			return $part;
		}
		$found = array_intersect_key( $part, array_flip( $params['languages'] ) );
		if ( !$params['languagefallback'] ) {
			return $found;
		}
		$fallbacks = \MediaWiki\MediaWikiServices::getInstance()->getLanguageFallback();
		foreach ( array_diff( $params['languages'], array_keys( $found ), [ 'mul' ] ) as $asked ) {
			foreach ( [ ...$fallbacks->getAll( $asked ), 'mul' ] as $language ) {
				if ( isset( $part[$language] ) ) {
					$found[$asked] = [
						'value' => $part[$language]['value'],
						'language' => $language,
						'for-language' => $asked,
					];
					break;
				}
			}
		}
		return $found;
	}

	/** End with an error as Wikibase words it: its message key beside, where it has one. */
	private function dieOf( string $code, string $key, string $text, ?string $id = null ): void {
		$data = $id === null ? [] : [ 'id' => $id ];
		if ( $key !== '' ) {
			$html = [ 'html' => htmlspecialchars( $text, ENT_NOQUOTES ) ];
			$data['messages'] = [ [
				'name' => $key,
				'parameters' => $id === null ? [] : [ $id ],
				ApiResult::META_BC_SUBELEMENTS => [ 'html' ],
			] + $html ];
		}
		$words = new RawMessage( '$1', [ Message::plaintextParam( $text ) ] );
		$this->getMain()->dieWithError( $words, $code, $data );
	}
}
