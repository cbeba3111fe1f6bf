<?php
/**
 * action=wbsearchentities for a test wiki: labels and aliases that begin with the text, in the asked
 * language and what the wiki falls back to, as the real module answers. And list=search for
 * "haswbstatement:P846=5219243", the one keyword of WikibaseCirrusSearch that is asked.
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
use Wikimedia\ParamValidator\TypeDef\IntegerDef;

class HgldSearchEntities extends ApiBase {
	public function execute() {
		$params = $this->extractRequestParams();
		$fallbacks = \MediaWiki\MediaWikiServices::getInstance()->getLanguageFallback();
		$languages = $params['strictlanguage']
			? [ $params['language'] ]
			: [ $params['language'], ...$fallbacks->getAll( $params['language'] ), 'mul' ];
		$found = [];
		foreach ( HgldHooks::allEntities() as $entity ) {
			foreach ( $languages as $language ) {
				$match = $this->match( $entity, $language, $params['search'] );
				if ( $match !== null ) {
					$found[] = $this->shown( $entity, $match, $languages );
					break;
				}
			}
		}
		$result = $this->getResult();
		$result->addValue( null, 'searchinfo', [ 'search' => $params['search'] ] );
		$shown = array_slice( $found, $params['continue'], $params['limit'] );
		ApiResult::setIndexedTagName( $shown, 'entity' );
		$result->addValue( null, 'search', $shown );
		if ( count( $found ) > $params['continue'] + $params['limit'] ) {
			$result->addValue( null, 'search-continue', $params['continue'] + $params['limit'] );
		}
		$result->addValue( null, 'success', 1 );
	}

	/** The label or alias of a language that begins with the text; case counts for nothing. */
	private function match( array $entity, string $language, string $text ): ?array {
		$names = [ [ 'label', $entity['labels'][$language]['value'] ?? '' ] ];
		foreach ( $entity['aliases'][$language] ?? [] as $alias ) {
			$names[] = [ 'alias', $alias['value'] ];
		}
		foreach ( $names as [ $type, $name ] ) {
			if ( $name !== '' && str_starts_with( mb_strtolower( $name ), mb_strtolower( $text ) ) ) {
				return [ 'type' => $type, 'language' => $language, 'text' => $name ];
			}
		}
		return null;
	}

	private function shown( array $entity, array $match, array $languages ): array {
		$shown = [
			'id' => $entity['id'],
			'title' => $entity['id'],
			'repository' => 'local',
			'display' => [],
		];
		foreach ( [ 'label' => 'labels', 'description' => 'descriptions' ] as $name => $part ) {
			foreach ( $languages as $language ) {
				if ( isset( $entity[$part][$language] ) ) {
					$shown['display'][$name] = $entity[$part][$language];
					$shown[$name] = $entity[$part][$language]['value'];
					break;
				}
			}
		}
		return $shown + [ 'match' => $match ];
	}

	protected function getAllowedParams() {
		$languages = array_keys( \MediaWiki\MediaWikiServices::getInstance()
			->getLanguageNameUtils()->getLanguageNames() );
		return [
			'search' => [ ParamValidator::PARAM_TYPE => 'string', ParamValidator::PARAM_REQUIRED => true ],
			'language' => [
				ParamValidator::PARAM_TYPE => [ ...$languages, 'mul' ],
				ParamValidator::PARAM_REQUIRED => true,
			],
			'strictlanguage' => [ ParamValidator::PARAM_TYPE => 'boolean' ],
			'type' => [
				ParamValidator::PARAM_TYPE => [ 'item', 'property' ],
				ParamValidator::PARAM_DEFAULT => 'item',
			],
			'limit' => [
				ParamValidator::PARAM_TYPE => 'limit',
				ParamValidator::PARAM_DEFAULT => 7,
				IntegerDef::PARAM_MIN => 1,
				IntegerDef::PARAM_MAX => 50,
				IntegerDef::PARAM_MAX2 => 50,
			],
			'continue' => [ ParamValidator::PARAM_TYPE => 'integer', ParamValidator::PARAM_DEFAULT => 0 ],
		];
	}
}

class HgldSearchStatements extends ApiQueryBase {
	public function __construct( ApiQuery $query, string $name ) {
		parent::__construct( $query, $name, 'sr' );
	}

	public function execute() {
		$params = $this->extractRequestParams();
		if ( !preg_match( '/^haswbstatement:(P\d+)=(.+)$/', $params['search'], $asked ) ) {
			$this->dieWithError( 'apierror-search-notsupported' );
		}
		[ , $property, $value ] = $asked;
		$found = array_filter(
			HgldHooks::allEntities(),
			static fn ( $entity ) => in_array( $value, array_map(
				static fn ( $claim ) => $claim['mainsnak']['datavalue']['value'] ?? null,
				$entity['claims'][$property] ?? []
			), true )
		);
		$shown = array_map(
			static fn ( $entity ) => [ 'ns' => 0, 'title' => $entity['id'] ],
			array_slice( $found, 0, $params['limit'] )
		);
		ApiResult::setIndexedTagName( $shown, 'p' );
		$result = $this->getResult();
		$result->addValue( [ 'query', 'searchinfo' ], 'totalhits', count( $found ) );
		$result->addValue( 'query', $this->getModuleName(), $shown );
	}

	protected function getAllowedParams() {
		return [
			'search' => [ ParamValidator::PARAM_TYPE => 'string', ParamValidator::PARAM_REQUIRED => true ],
			'limit' => [
				ParamValidator::PARAM_TYPE => 'limit',
				ParamValidator::PARAM_DEFAULT => 10,
				IntegerDef::PARAM_MIN => 1,
				IntegerDef::PARAM_MAX => 500,
				IntegerDef::PARAM_MAX2 => 5000,
			],
		];
	}
}
